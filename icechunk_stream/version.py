"""The package's version: in the headers of the objects that it writes, and public."""

VERSION = "0.1.0"
