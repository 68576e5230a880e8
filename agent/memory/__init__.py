"""What is remembered across conversations: notes of our own, and one provider of others."""
