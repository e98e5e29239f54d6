"""Services: each takes ports, asks the domain to decide, and saves what it decided."""
