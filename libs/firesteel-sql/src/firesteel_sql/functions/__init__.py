"""The built-in functions: which operands they take, what type they give, and which kernel computes them."""
