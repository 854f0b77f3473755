"""The same agents on other people's trainers."""
