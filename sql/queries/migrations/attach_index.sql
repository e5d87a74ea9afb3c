-- Attach a partition's index to the index of the table.
ALTER INDEX {index} ATTACH PARTITION {part}
