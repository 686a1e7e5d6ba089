"""A2A as data: states, errors, versions and the JSON codec. Knows no model and no view."""
