"""Where the bytes live: directories and their chunk files, and the chain that the chunks make."""
