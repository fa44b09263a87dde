"""Tables of the report, a file for each kind."""
