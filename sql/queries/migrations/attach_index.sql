-- Make a partition's index a part of the whole table's.
ALTER INDEX {index} ATTACH PARTITION {part}
