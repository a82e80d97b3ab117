"""The documents: their code runs, their links lead somewhere, and the site's build fails where one does not."""
