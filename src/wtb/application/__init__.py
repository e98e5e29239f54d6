"""Services: each one loads through ports, lets the domain decide, and saves the result."""
