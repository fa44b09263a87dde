"""The report on a store: what the runs allow one to say, as one page with tables and figures."""
