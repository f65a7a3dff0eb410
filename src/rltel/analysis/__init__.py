"""What runs' files say: rows of numbers from them, and copies with today's names."""
