"""From samples to outcomes: statistics, laws, drift, comparison, trend. Pure."""
