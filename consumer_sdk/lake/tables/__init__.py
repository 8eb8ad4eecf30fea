"""Tables as commands show them: where they are, the inventory, the dead letters and their replay."""
