"""An object store and catalogs on this machine: versitygw, Iceberg's REST catalog, PostgreSQL."""
