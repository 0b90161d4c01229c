"""The page's plots, a file each."""
