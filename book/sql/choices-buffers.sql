SELECT cell, printf('%.2f', max(server_cpu_us_per_request) FILTER (WHERE server = '256')) AS '256 bytes',
  printf('%.2f', max(server_cpu_us_per_request) FILTER (WHERE server = '1k')) AS '1 KiB', printf('%.2f',
  max(server_cpu_us_per_request) FILTER (WHERE server = '4k')) AS '4 KiB', printf('%.2f',
  max(server_cpu_us_per_request) FILTER (WHERE server = '16k')) AS '16 KiB', printf('%.2f',
  max(server_cpu_us_per_request) FILTER (WHERE server = '64k')) AS '64 KiB', printf('%.2f',
  max(server_cpu_us_per_request) FILTER (WHERE server = '256k')) AS '256 KiB'
FROM summaries
WHERE record = '2026-11-26-buffers'
GROUP BY cell
ORDER BY cell
