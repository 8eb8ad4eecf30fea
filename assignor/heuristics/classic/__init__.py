"""The paper's and classic bin packing, `lag-aware` and `sticky`."""
