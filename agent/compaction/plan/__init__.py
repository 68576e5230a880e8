"""What a compression is, decided without doing anything: where to cut, what stays, what it says."""
