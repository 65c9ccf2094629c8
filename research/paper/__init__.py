"""The paper's tables: what each cell is made with, what came out, and how the two compare."""
