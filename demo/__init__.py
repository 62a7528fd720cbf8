"""A stream of weather stations that loses its driver, and what is in the repository afterwards."""
