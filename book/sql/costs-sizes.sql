SELECT cell, printf('%.2f', server_cpu_us_per_request) AS 'CPU µs', printf('%.0f', p99_us) AS 'p99, µs'
FROM summaries
WHERE record = '2026-11-22-sizes' AND server = 'highwater'
ORDER BY substr(cell, 1, 1) DESC, CAST(replace(replace(replace(cell, 'upload-', ''), 'download-', ''), 'k', '000')
  AS INTEGER)
