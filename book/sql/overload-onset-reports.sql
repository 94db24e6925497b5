SELECT a.cell AS 'times the capacity', CASE a.server WHEN 'ebpf' THEN 'gate in the kernel' ELSE 'not accepting' END AS mechanism,
  printf('%.1f', 100 * a.of_peak) AS 'io_uring, % of the peak', printf('%.0f', a.p99_us / 1000) AS 'p99, ms',
  printf('%.1f', 100 * b.of_peak) AS 'epoll, % of the peak', printf('%.0f', b.p99_us / 1000) AS 'p99, ms '
FROM goodput AS a JOIN goodput AS b USING (record, cell)
WHERE record = '2026-11-28-onset' AND a.server IN ('ebpf', 'accept') AND b.server = a.server || '-epoll' AND cell NOT LIKE 'kept%'
  AND cell NOT LIKE 'asleep%'
ORDER BY CAST(cell AS REAL), a.server DESC
