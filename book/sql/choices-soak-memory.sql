SELECT CAST(at_s AS INTEGER) AS 'second', max(value) / 1048576 AS 'MiB', cell || ', ' || server AS which
FROM series
WHERE record = '2026-11-22-soak' AND name = 'process_resident_memory_bytes'
GROUP BY which, CAST(at_s AS INTEGER)
ORDER BY 1
