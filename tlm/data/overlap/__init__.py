"""Which texts overlap others, word for word: n-grams, and who shares them."""
