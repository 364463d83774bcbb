"""The report's style sheet: one column on a telephone, two figures abreast on a desk; light and dark."""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --line: #d0d7de; --bar: #2b6cb0;
  --panel: #f6f8fa; --warn: #7a4b00; --warn-paper: #fff4db; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --paper: #0f1318; --line: #333c46;
  --bar: #5fa8e8; --panel: #171d24; --warn: #ffd58a; --warn-paper: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1160px; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1rem 0 .4rem; }
h4 { font-size: 1rem; margin: .2rem 0; overflow-wrap: anywhere; }
a { color: var(--bar); }
code { font-size: .92em; }
.sub, figcaption, .subjects, caption { color: var(--soft); }
.sub { margin: .2rem 0 .8rem; }
.notice { margin: .4rem 0; padding: .5rem .8rem; color: var(--warn); background: var(--warn-paper); border-radius: 6px;
  font-weight: 600; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .8rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; list-style: none; margin: 0 0 1rem; padding: 0; }
.tiles li { flex: 1 1 8rem; padding: .6rem .9rem; background: var(--panel); border-radius: 8px; color: var(--soft); }
.tiles strong { display: block; font-size: 1.5rem; color: var(--ink); font-variant-numeric: tabular-nums; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem 2.5rem; }
.figures > div { max-width: 46rem; min-width: 0; }
svg.bars { display: block; width: 100%; overflow: visible; font-size: 13px; }
svg text { fill: var(--ink); }
svg .axis, svg .value { fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .axis { font-size: 12px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .bar { fill: var(--bar); opacity: .75; }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
.scroll { overflow-x: auto; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; font-size: .92em; }
th, td { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 400; }
td.number { text-align: right; }
.heat td, .heat thead th { text-align: right; padding: .25rem .45rem; }
.heat tbody th { white-space: nowrap; }
.heat td { background: color-mix(in srgb, var(--bar) calc(var(--share, 0%) * .55), transparent); }
.heat td.self { color: var(--soft); background: var(--panel); }
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem;
  align-items: start; }
.example { min-width: 0; padding: .8rem; background: var(--panel); border-radius: 10px; }
.subjects { margin: 0 0 .4rem; font-size: .92em; }
.films { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 10rem), 1fr)); gap: .8rem; }
figure { margin: 0; }
.film { position: relative; background: #000; border-radius: 4px; overflow: hidden; }
.film img { display: block; width: 100%; height: auto; }
.film .layer { position: absolute; inset: 0; height: 100%; }
.withheld { display: grid; place-items: center; width: 100%; color: #9aa4af; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .2rem 1rem; font-size: .87em;
  padding-top: .3rem; overflow-wrap: anywhere; }
figcaption span { min-width: 0; }
figcaption label, label.all { white-space: nowrap; color: var(--ink); }
label.all { display: inline-block; margin-bottom: .8rem; }
figure:has(input:not(:checked)) .layer, section:has(label.all input:not(:checked)) .layer { visibility: hidden; }
.legend { list-style: none; margin: .3rem 0 0; padding: 0; font-size: .9em; }
.legend li { display: flex; gap: .5rem; align-items: baseline; }
.swatch { flex: none; width: 1.1em; height: .75em; border: 2px solid var(--c);
  background: color-mix(in srgb, var(--c) 45%, transparent); }
.swatch.line { background: none; }
.chips { display: flex; flex-wrap: wrap; gap: .3rem; list-style: none; margin: .3rem 0; padding: 0; }
.chip { padding: .05rem .6rem; border: 1px solid var(--bar); border-radius: 999px; font-size: .9em; }
blockquote { margin: .4rem 0; padding-left: .8rem; border-left: 3px solid var(--bar); }
dl { margin: .4rem 0; }
dt { color: var(--soft); font-size: .87em; }
dd { margin: 0 0 .4rem; }
@media print { .example { break-inside: avoid; } nav, label { display: none; } }
"""
