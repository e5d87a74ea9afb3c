"""The web console: pages for people, on the API's services."""
