"""What a query reads: whose rows it adds up, what of it is public, and how far one record moves it."""
