#!/usr/bin/env python3
"""What the experiments conclude from numbers, without a network, a server or root; only the clients of `patience.py` are tested
against a socket. Run: python3 bench/overload/test_overload.py"""

import argparse
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import threading
import unittest
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import adaptive
import chart
import clients
import lab
import law
import netns
import patience
import record
import scaling
import stress
import tables
import waiting


class Law(unittest.TestCase):
    """Purpose: the bound is the physics of a core that serves some and refuses the rest, for every load and cost."""

    def test_a_core_filled_with_serving_and_refusing_obeys_it(self):
        # Counted out: serving takes 1000 us, refusing 20; of 5 times 1000 a second, how many fit into a second?
        serve, refuse, offered = 1000, 20, 5000
        served = max(n for n in range(1001) if n * serve + (offered - n) * refuse <= 1_000_000)
        self.assertAlmostEqual(law.share(5, refuse / serve), served / 1000, delta=0.002)

    def test_ends(self):
        self.assertEqual(law.share(0.5, 0.1), 0.5)
        self.assertEqual(law.share(1, 0.1), 1)
        self.assertEqual(law.share(10, 0), 1)
        self.assertEqual(law.share(10, 0.1), 0)
        self.assertEqual(law.share(11, 0.1), 0)
        self.assertEqual(law.share(2, 1), 0)

    def test_cost_of_a_refusal(self):
        # A tenth of the core for 5000 a second is 20 us each.
        self.assertAlmostEqual(law.cost_us(0.01, 0.11, 5000), 20)
        self.assertIsNone(law.cost_us(0.01, 0.11, 0))

    def test_what_was_lost_between_two_instants(self):
        # The loop had no turn from second 2 to 5: all of that time is lost, wherever one looks inside.
        points = [(0.0, 0.0), (1.0, 0.0), (2.0, 0.1), (5.0, 3.1), (6.0, 3.1)]
        self.assertAlmostEqual(lab.lost_at(points, 4.0) - lab.lost_at(points, 3.0), 1.0)
        self.assertAlmostEqual(lab.lost_at(points, 1.5), 0.05)
        for outside in (0.0, 6.5):
            with self.assertRaises(lab.Failed):
                lab.lost_at(points, outside)


class OverTime(unittest.TestCase):
    """Purpose: convergence means staying, oscillation means a period and not a stray point, alarms are counted as they begin."""

    STEP = [(n / 10, 0 if n < 12 else 100) for n in range(100)]

    def test_convergence_is_counted_from_the_onset(self):
        self.assertAlmostEqual(law.converged_after(self.STEP, 1.0, 10, 100), 0.2)
        self.assertIsNone(law.converged_after(self.STEP, 0, 1.0, 100))
        self.assertIsNone(law.converged_after([], 0, 1.0, 100))

    def test_within_five_percent_and_not_a_hair_below(self):
        self.assertEqual(law.converged_after([(0, 95), (1, 95)], 0, 2, 100), 0)
        self.assertIsNone(law.converged_after([(0, 94.9), (1, 94.9)], 0, 2, 100))

    def test_a_dip_passes_but_a_wrong_level_does_not(self):
        dip = [(n, 50 if n == 5 else 100) for n in range(20)]
        self.assertEqual(law.converged_after(dip, 0, 20, 100), 0)
        lucky = [(n, 100 if n == 2 else 80) for n in range(20)]
        self.assertIsNone(law.converged_after(lucky, 0, 20, 100))
        settles_late = [(n, 100 if n == 2 or n >= 10 else 0) for n in range(20)]
        self.assertEqual(law.converged_after(settles_late, 0, 20, 100), 10)

    def test_oscillation(self):
        square = [(n, 90 if n % 20 < 10 else 110) for n in range(100)]
        self.assertAlmostEqual(law.oscillation(square, 0, 100), 0.1)
        stray = [(n, 100) for n in range(99)] + [(99, 0)]
        self.assertAlmostEqual(law.oscillation(stray, 0, 100), 0, places=3)
        self.assertIsNone(law.oscillation([(0, 0)], 0, 1))

    def test_smoothing_looks_back_only(self):
        self.assertEqual(law.smoothed([(1, 10), (2, 20), (3, 60)], 2), [(1, 10), (2, 15), (3, 40)])

    def test_alarms(self):
        signal = [(0, 0), (1, 1), (2, 1), (3, 0), (4, 1)]
        self.assertEqual(law.false_alarms(signal, 0, 5), 2)
        self.assertEqual(law.false_alarms(signal, 3, 4), 0)
        self.assertEqual(law.raised_after(signal, 0.5), 0.5)
        self.assertIsNone(law.raised_after(signal[:1], 0))


def load_report(goodput, seconds=4, **fields):
    return {"goodput_per_s": goodput, "ok_per_s": goodput, "sent": goodput * seconds, "ok": goodput * seconds,
            "p50_us": 1000, "p99_us": 2000,
            "p999_us": 3000, "refused": 0, "non_2xx": 0, "timeouts": 0, "errors": 0, "rate_ratio": 1.0, **fields}


def row(experiment, mechanism, goodput=0, number=0, **fields):
    return {"experiment": experiment, "mechanism": mechanism, "round": number, "k": fields.pop("k", 0), "shape": fields.pop("shape", ""),
            "limit": 0, "asked": {"rate": fields.pop("rate", 0), "connections": fields.pop("connections", 0), "seconds": 4},
            "load": load_report(goodput), "cores": {"server": {"softirq": 0.1}}, "server_cpu": 0.9, "gauges": {},
            "counted": {"http_requests_total": 4 * goodput}, "span_s": 4, **fields}


class Tables(unittest.TestCase):
    """Purpose: each cell is judged by the peak of its own server and the cost of its own mechanism."""

    def rows(self):
        rows = [row("capacity", "none", peak, number) for number, peak in enumerate([900, 1000, 1100])]
        rows += [row("open", "gate", 0.8 * peak, number, k=10, rate=10 * peak, peaks_per_s=[0.98 * peak, 1.02 * peak])
                 for number, peak in enumerate([900, 1000, 1100])]
        refusal = row("refusal", "gate", soak={"idle_share": 0.01, "loaded_share": 0.13})
        refusal["load"] = load_report(0, sent=4 * 6000)
        return [*rows, refusal]

    def test_each_row_has_its_own_peak(self):
        derived = tables.derive(self.rows())
        (cell,) = derived["open"]
        self.assertEqual(cell["shares"], [0.8, 0.8, 0.8])
        self.assertAlmostEqual(cell["k_measured"], 10)
        self.assertEqual(derived["refusal_us"]["gate"], [20, 20, 20])
        # 20 us of 1000: (1 - 10 x 0.02) / (1 - 0.02).
        self.assertAlmostEqual(cell["law"], 0.8 / 0.98)
        self.assertAlmostEqual(cell["below_law"], 0.8 / 0.98 - 0.8)

    def test_a_server_that_is_still_busy_afterwards_is_judged_by_before(self):
        self.assertEqual(tables.own_peak({"peaks_per_s": [900, 1000]}), 950)
        self.assertEqual(tables.own_peak({"peaks_per_s": [900, 0]}), 900)

    def test_failed_rows_are_told_and_do_not_count(self):
        failed = {"experiment": "open", "mechanism": "nft", "round": 0, "error": "nft: not found"}
        derived = tables.derive([*self.rows(), failed])
        self.assertEqual(derived["failed"], [{"mechanism": "nft", "error": "nft: not found", "times": 1}])
        self.assertEqual({cell["mechanism"] for cell in derived["open"]}, {"gate"})
        self.assertIn("nft: not found", tables.text(derived))

    def test_overhead_is_paired_by_round_and_shape(self):
        soak = lambda taken: {"idle_share": 0.0, "loaded_share": taken}
        rows = []
        for number in range(5):
            rows.append(row("overhead", "none", 100, number, shape="a", soak=soak(0.5)))
            rows.append(row("overhead", "gate", 100, number, shape="a", soak=soak(0.505)))
            rows.append(row("overhead", "gate", 100, number, shape="b", soak=soak(0.9)))
        (one,) = tables.derive(rows)["overhead"]
        self.assertEqual((one["shape"], one["pairs"], one["ratio"], one["ci95"]), ("a", 5, 1.01, [1.01, 1.01]))

    def test_a_load_that_was_too_slow_is_warned_of(self):
        rows = self.rows()
        rows[3]["load"]["bottlenecks"] = ["97 % was sent"]
        self.assertIn("open gate 10", tables.text(tables.derive(rows)))

    def test_nothing_measured_is_still_a_table(self):
        self.assertIn("no capacity", tables.text(tables.derive([])))


class Adaptive(unittest.TestCase):
    """Purpose: the mark is the best fixed limit of that phase, and a limiter that fails once has failed."""

    def row(self, subject, values, number=0):
        goodput = [[(n + 1) / 10, value] for n, value in enumerate(values)]
        phase = {"name": "start", "begin_s": 0.0, "end_s": len(values) / 10, "goodput": goodput}
        return {"experiment": "adaptive", "round": number, "subject": subject, "phases": [phase], "limits": [[1.0, 8]]}

    def test_judged_by_the_best_fixed_limit(self):
        rows = [self.row("fixed 8", [900] * 100), self.row("fixed 64", [10] * 100), self.row("gradient", [0] * 10 + [880] * 90),
                self.row("aimd", [880] * 100), self.row("aimd", [500] * 100, number=1)]
        derived = adaptive.derive(rows)
        self.assertEqual(derived["phases"], [{"phase": "start", "best": "fixed 8", "goodput_per_s": 900}])
        found = {one["subject"]: one for one in derived["subjects"]}
        # Ten points of nothing, then as long as the window takes to forget them.
        self.assertAlmostEqual(found["gradient"]["converged_s"], 1.3)
        self.assertAlmostEqual(found["gradient"]["share"], 880 / 900)
        self.assertIsNone(found["aimd"]["converged_s"])
        self.assertIn("never", adaptive.text(derived))

    def test_nothing_good_is_not_convergence(self):
        derived = adaptive.derive([self.row("fixed 8", [0] * 50), self.row("gradient", [0] * 50)])
        self.assertTrue(all(one["converged_s"] is None for one in derived["subjects"]))


class Scaling(unittest.TestCase):
    """Purpose: the delay is counted from the onset; alarms before it are false whatever comes later."""

    def test_derived(self):
        rows = [{"experiment": "scaling", "k": 2.0, "onset_s": 5.0, "end_s": 15.0, "missed": 0, "load": load_report(900),
                 "ratios": [[n, 0.5 if n < 5 else 2.0] for n in range(15)], "needed": [[n, float(n >= 6)] for n in range(15)]}]
        (one,) = scaling.derive(rows)["loads"]
        self.assertEqual((one["demand_ratio"], one["raised_after_s"], one["alarms"], one["raised_before_onset"]), (2.0, 1.0, 1, 0))


def waited(shed="default", groups=None, rejections=None, **fields):
    """A row of patience.py; groups as {kind: outcomes}."""
    groups = {kind: {"asked": sum(outcomes.values()), "outcomes": outcomes, "slowest_ms": 12.0}
              for kind, outcomes in (groups or {"page": {"ok": 6}}).items()}
    return {"experiment": "patience", "scenario": "pages", "case": "6 × 2 ms", "workers": 1, "shed": shed, "groups": groups,
            "rejections": rejections or {}, "needs_scaleout": 0.0, "demand_ratio": 0.25, "limit_min": 64.0, "server_cpu": 0.1, "others_cpu": 0.0, **fields}


class Patience(unittest.TestCase):
    """Purpose: every outcome but a 200 counts as a refusal, and a refusal under `--shed none` does not count against the default."""

    def test_all_answered(self):
        derived = waiting.derive([waited(), waited("none", {"page": {"ok": 5, "503": 1}})])
        self.assertEqual((derived["refused_by_default"], derived["asked_by_default"], derived["failed"]), (0, 6, []))
        self.assertEqual(derived["cases"][0]["none"]["refused"], 1)
        self.assertIn("0 of 6 refused", waiting.text(derived))

    def test_every_way_to_be_refused_counts(self):
        for outcome in ("503", "408", "refused", "reset", "closed", "timeout", "cut", "silent"):
            derived = waiting.derive([waited(groups={"quick": {"ok": 5}, "polls": {"ok": 5, outcome: 2}})])
            self.assertEqual(derived["refused_by_default"], 2, outcome)
            self.assertIn(f"polls: 2 {outcome}", waiting.text(derived))

    def test_what_only_the_server_saw_counts_once(self):
        dropped = {'layer="kernel",reason="limit"': 3.0}
        self.assertEqual(waiting.derive([waited(rejections=dropped)])["refused_by_default"], 3)
        both = waited(groups={"page": {"ok": 3, "refused": 3}}, rejections=dropped)
        self.assertEqual(waiting.derive([both])["refused_by_default"], 3)

    def test_impossible_deadlines_are_refused_rightly(self):
        rows = [waited(groups={"others": {"ok": 60}, waiting.HOSTILE: {"503": 990}}, rejections={'layer="queue",reason="deadline"': 990.0})]
        derived = waiting.derive(rows)
        self.assertEqual((derived["refused_by_default"], derived["asked_by_default"]), (0, 60))

    def test_a_cell_that_failed_and_a_server_that_asks_for_more_are_told(self):
        failed = {"experiment": "patience", "scenario": "pages", "case": "6 × 2 ms", "shed": "none", "error": "it died"}
        derived = waiting.derive([waited(needs_scaleout=1.0, others_cpu=0.9), failed])
        self.assertEqual(derived["disturbed"], derived["asked_for_more"])
        self.assertEqual(len(derived["failed"]), 1)
        self.assertEqual(derived["asked_for_more"], ["pages 6 × 2 ms, 1 worker"])
        self.assertIn("it died", waiting.text(derived))

    def test_the_table_for_the_documentation_adds_pages_up(self):
        rows = [waited(), waited("none"), waited(case="100 × 300 ms", groups={"page": {"ok": 1200}}, demand_ratio=1.5)]
        lines = waiting.markdown(waiting.derive(rows)).splitlines()
        self.assertEqual(lines[2:], ["| pages, 1 worker | 1 206 | 0 | 12 ms | 0 | 12 ms | 0 | 1.50 | 64 |"])

    def test_the_heavy_tail_has_its_mean_and_its_bounds(self):
        prng = random.Random(1)
        drawn = [patience.heavy_tailed_us(prng) for _ in range(200_000)]
        self.assertTrue(patience.LEAST_US <= min(drawn) and max(drawn) <= patience.MOST_US)
        self.assertAlmostEqual(statistics.fmean(drawn) / patience.mean_us(), 1, delta=0.03)
        self.assertAlmostEqual(patience.mean_us(), 1500, delta=10)

    def test_the_plan_has_every_page_on_one_and_two_workers(self):
        options = argparse.Namespace(quick=False, seconds=3600.0)
        cells = [cell for make in patience.PLAN.values() for cell in make(options, 0.9)]
        pages = {(cell.case, cell.workers) for cell in cells if cell.scenario == "pages"}
        self.assertEqual(len(pages), 2 * len(patience.PAGE_REQUESTS) * len(patience.PAGE_WORK_MS))
        self.assertEqual(len({(cell.scenario, cell.case, cell.workers) for cell in cells}), len(cells))


class Waiting(unittest.TestCase):
    """Purpose: each end of a request has its own outcome; a client that took a refusal for an answer would prove nothing."""

    ANSWERS = {
        "ok": [b"HTTP/1.1 200 OK\r\nContent-", b"Length: 4\r\n\r\nab", b"cd"],
        "503": [b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno"],
        "closed": [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab"],
    }

    def setUp(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        self.clients = self.enterContext(clients.Clients(*self.listener.getsockname()))

    def serve(self, *pieces):
        """Answers one request on one connection, and closes it."""
        def one():
            with self.listener.accept()[0] as stream:
                stream.recv(4096)
                for piece in pieces:
                    stream.sendall(piece)
        thread = threading.Thread(target=one)
        thread.start()
        self.addCleanup(thread.join)

    def test_outcomes(self):
        for outcome, pieces in self.ANSWERS.items():
            self.serve(*pieces)
            self.clients.ask(outcome, "/", on=self.clients.connection())
            self.clients.drain()
            self.assertEqual(dict(self.clients.tallies[outcome].outcomes), {outcome: 1})

    def test_a_refused_connection(self):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            target = gone.getsockname()
        with clients.Clients(*target) as refused:
            refused.ask("any", "/", on=refused.connection())
            refused.drain()
            self.assertEqual(dict(refused.tallies["any"].outcomes), {"refused": 1})

    def test_no_answer(self):
        real, clients.TIMEOUT_S = clients.TIMEOUT_S, 0.05
        self.addCleanup(setattr, clients, "TIMEOUT_S", real)
        # It is in the backlog, and no server accepts it.
        self.clients.ask("any", "/")
        self.clients.drain()
        self.assertEqual(dict(self.clients.tallies["any"].outcomes), {"timeout": 1})

    def test_a_stream_that_is_cut_off(self):
        self.serve(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"9\r\ndata: 0\n\n\r\n")
        self.clients.ask("stream", "/", on=self.clients.connection(), streams=True)
        outcomes = self.clients.tallies["stream"].outcomes
        self.clients.run(clients.clock() + 10, lambda: clients.CUT in outcomes)
        self.assertEqual(dict(outcomes), {"ok": 1, "cut": 1})


class Charts(unittest.TestCase):
    """Purpose: a chart is well-formed whatever the names and values are, keeps to its frame, and needs no colour to be read."""

    def drawn(self, svg):
        return ElementTree.fromstring(svg)

    def test_names_cannot_break_it(self):
        svg = chart.lines("a < b & c", "x", "y", [chart.Series("<evil>", [(1, 2), (3, 4)])])
        self.assertIn("a < b & c", [element.text for element in self.drawn(svg).iter("{http://www.w3.org/2000/svg}text")])

    def test_points_stay_in_the_frame(self):
        frame = chart.Frame(chart.nice_ticks(0, 10), chart.nice_ticks(0, 100), False)
        self.assertEqual((frame.x(0), frame.x(10)), (chart.LEFT, chart.WIDTH - chart.RIGHT))
        self.assertEqual((frame.y(0), frame.y(100)), (chart.HEIGHT - chart.BOTTOM, chart.TOP))
        self.assertEqual(frame.y(1000), chart.TOP)

    def test_ticks_are_round_and_cover(self):
        for low, high, expected in [(0, 100, [0, 20, 40, 60, 80, 100]), (0, 914, [0, 200, 400, 600, 800, 1000]),
                                    (1, 1, [1.0, 1.2, 1.4, 1.6, 1.8, 2.0])]:
            for got, want in zip(chart.nice_ticks(low, high), expected, strict=True):
                self.assertAlmostEqual(got, want)

    def test_empty_and_single(self):
        self.drawn(chart.lines("t", "x", "y", []))
        self.drawn(chart.lines("t", "x", "y", [chart.Series("one", [(5, 0)])], log_x=True))

    def test_no_two_lines_look_alike_without_colour(self):
        series = [chart.Series(str(n), [(0, n), (1, n)]) for n in range(len(chart.MARKERS))]
        self.assertEqual(len(set(chart.MARKERS)), len(chart.COLOURS))
        self.drawn(chart.lines("t", "x", "y", [*series, chart.Series("0", [(0, 1)], law=True, like="0")]))


class Cells(unittest.TestCase):
    """Purpose: the generator and the server get the settings of the experiment."""

    def options(self, **fields):
        return argparse.Namespace(**{"sections": ("open",), "mechanisms": ("none", "accept"), "rounds": 3, "work_us": 1000, "seconds": 4.0,
                                     "warmup": 2.0, "limit": 0, "quick": False, **fields})

    def test_every_round_has_every_load_its_capacity_and_the_cost_of_refusing(self):
        rounds = stress.plan(self.options(), 900)
        self.assertEqual(len(rounds), 3)
        for cells in rounds:
            self.assertEqual(sorted(cell.load.rate for cell in cells if cell.section == "open" and cell.mechanism == "accept"),
                             [1, 2, 5, 10])
            self.assertEqual([cell.mechanism for cell in cells if cell.section == "refusal"], ["accept"])
            self.assertEqual(sum(cell.section == "capacity" for cell in cells), 2)

    def test_sections_are_spread_over_the_rounds(self):
        rounds = stress.plan(self.options(sections=stress.SECTIONS), 900)
        self.assertEqual(sum(cell.section == "closed" for cells in rounds for cell in cells), 2 * len(stress.CLIENTS))
        self.assertEqual(sum(cell.section == "sweep" for cells in rounds for cell in cells), 2 * len(stress.LIMITS))
        self.assertTrue(all(any(cell.section == "closed" for cell in cells) for cells in rounds[:3]))

    def test_the_command_lines(self):
        argv = lab.Load(rate=100, warmup_s=1, seconds=2).argv("load", "h")
        self.assertEqual(argv[:3], ["load", "load", "http://h:8080/work?us=1000"])
        self.assertIn("--close", argv)
        self.assertIn("--rate", argv)
        argv = lab.Load(connections=8, close=False).argv("load", "h")
        self.assertNotIn("--close", argv)
        self.assertNotIn("--rate", argv)
        self.assertEqual(lab.MECHANISMS["nft"].argv()[-2:], ["--connection-limit", "10"])
        self.assertEqual(lab.MECHANISMS["accept"].argv(3), ["--shed", "accept", "--limiter", "fixed", "--connection-limit", "3"])
        self.assertEqual(lab.MECHANISMS["accept"].argv(), ["--shed", "accept"])

    def test_metrics_are_read_with_their_labels(self):
        samples = lab.parse_metrics('# HELP a b\na{l="x y"} 2\nb 3e2\n')
        self.assertEqual(samples, {'a{l="x y"}': 2.0, "b": 300.0})


class Records(unittest.TestCase):
    """Purpose: a record has every row, is never overwritten, and its charts stand beside it."""

    def test_evidence(self):
        with tempfile.TemporaryDirectory() as directory:
            real, record.BENCH = record.BENCH, directory
            self.addCleanup(setattr, record, "BENCH", real)
            head, rows = {"started": "2026-01-02T03:04:05+00:00"}, [{"kind": "row", "n": n} for n in range(3)]
            names = [record.write_evidence("unit", head, rows, {"peak": 1}, {"open": "<svg/>"}) for _ in range(2)]
            self.assertEqual([os.path.basename(name) for name in names[1]], ["2026-01-02-unit-2.json", "2026-01-02-unit-2-open.svg"])
            with open(names[0][0]) as file:
                self.assertEqual(json.load(file)["rows"], rows)


class Network(unittest.TestCase):
    """Purpose: without the privilege for a network of its own, the message says what to do."""

    def test_root(self):
        if os.geteuid() != 0:
            with self.assertRaisesRegex(netns.Refused, "sudo"):
                netns.check()


if __name__ == "__main__":
    unittest.main()
