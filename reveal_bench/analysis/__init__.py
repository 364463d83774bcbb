"""What predictions get wrong and where (paper 000, sections 3.4 and 4), and the report that shows it."""
