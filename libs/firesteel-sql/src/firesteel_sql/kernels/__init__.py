"""What computes SQL's functions for whole columns; the functions here are named by the expressions that use them."""
