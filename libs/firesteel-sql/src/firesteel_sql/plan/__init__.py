"""What a query means: relations and the expressions over their rows."""
