"""The rows of the fault table, a module for each kind of fault."""
