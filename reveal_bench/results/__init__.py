"""Results that travel: a receipt or a score document in the forms that other systems, papers and checklists ask for."""
