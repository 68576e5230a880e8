"""What is in a file: its kind by its bytes, pictures fit for a model, the text of documents."""
