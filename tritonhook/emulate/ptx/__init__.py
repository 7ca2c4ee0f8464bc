"""PTX: the front end that decodes a kernel of PTX for the machine."""
