"""The run store on Postgres: the same code as over folders, on a disk whose files are rows."""
