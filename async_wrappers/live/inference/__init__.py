"""Workers, and the sockets that carry tickets to them and messages back."""
