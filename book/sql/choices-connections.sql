SELECT CAST(cell AS INTEGER) AS connections, server_cpu_us_per_request AS 'CPU µs', server
FROM summaries
WHERE record = '2026-11-26-connections'
ORDER BY 1
