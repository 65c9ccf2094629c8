"""What an artifact was made from: sources with licences, raw files, what was left out; as a page, and as a bill."""
