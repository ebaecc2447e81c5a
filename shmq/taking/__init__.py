"""Taking: consumers by name, alone or as a group; what is held, comes again, goes elsewhere, or is still to do."""
