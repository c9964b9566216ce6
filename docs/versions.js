// The versions of the documentation; see "Versions of the documentation" in CONTRIBUTING.md.
showVersions(["dev", "stable", "1.0"]);
