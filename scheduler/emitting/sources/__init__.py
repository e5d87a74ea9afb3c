"""The kinds of rows that fall due."""
