SELECT coalesce(name, server) AS server, server_cpu_us_per_request AS 'CPU µs'
FROM summaries LEFT JOIN names USING (server)
WHERE record = '2026-11-22-framework' AND cell = 'plaintext' AND server_cpu_us_per_request IS NOT NULL
ORDER BY 2
