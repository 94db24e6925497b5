SELECT CASE server WHEN 'none' THEN 'no protection' WHEN 'app' THEN '503 per request'
    WHEN 'accept' THEN 'not accepting (needs no privilege)' WHEN 'ebpf-drop' THEN 'gate in the kernel, silent'
    ELSE 'gate in the kernel, resets' END AS 'refused by',
  max(printf('%.0f %%', 100 * of_peak)) FILTER (WHERE cell = '1.2x') AS '1.2 ×',
  max(printf('%.0f %%', 100 * of_peak)) FILTER (WHERE cell = '2x') AS '2 ×',
  max(printf('%.0f %%', 100 * of_peak)) FILTER (WHERE cell = '10x') AS '10 ×',
  max(iif(of_peak > 0, printf('%.0f ms', p99_us / 1000), '–')) FILTER (WHERE cell = '1.2x') AS 'p99 at 1.2 ×',
  max(iif(of_peak > 0, printf('%.0f ms', p99_us / 1000), '–')) FILTER (WHERE cell = '10x') AS 'p99 at 10 ×'
FROM goodput
WHERE record = '2026-11-28-stress' AND server IN ('none', 'app', 'accept', 'ebpf-drop', 'ebpf-reset')
GROUP BY server
ORDER BY max(of_peak) FILTER (WHERE cell = '10x')
