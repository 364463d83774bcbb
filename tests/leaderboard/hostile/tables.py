"""CSV and TSV files: quoting traps, wrong heads, cells that programs like to guess at."""

from __future__ import annotations

from tests.leaderboard.hostile.corpus import Bad, bad_texts

HEAD = "image_id,finding,x,y\n"
CELLS = "image_id,finding,cell\n"

TABLE: dict[str, tuple[str | bytes, str]] = {
    "only a head": (HEAD, "empty-file"),
    "an unknown column": ("image_id,finding,cell,age\nIMAGE,FINDING,A1,80\n", "unknown-column"),
    "a column twice": ("image_id,finding,cell,cell\nIMAGE,FINDING,A1,B2\n", "duplicate-column"),
    "no image": ("finding,cell\nFINDING,A1\n", "missing-column"),
    "no geometry": ("image_id,finding,x\nIMAGE,FINDING,1\n", "missing-column"),
    "no head": ("IMAGE,FINDING,10,20\n", "unknown-column missing-column"),
    "a head of markup": ("image_id,finding,cell,<script>alert(1)</script>\n", "unknown-column"),
    "a head of a formula": ("image_id,finding,cell,=1+1\n", "unknown-column"),
    "a head with NUL": ("image_id,finding,cell,\x00\n", "unknown-column"),
    "a head of direction marks": ("image_id,finding,cell,\u202exyz\n", "unknown-column"),
    "a head of a megabyte": ("image_id,finding,cell," + "x" * 1_000_000 + "\n", "unknown-column"),
    "a hundred thousand columns": (",".join(f"c{i}" for i in range(100_000)) + "\n", "columns"),
    "a hundred thousand commas": ("image_id,finding,cell" + "," * 100_000 + "\n", "columns"),
    "too few values": (CELLS + "IMAGE,FINDING\n", "row-length"),
    "too many values": (CELLS + "IMAGE,FINDING,A1,A2\n", "row-length"),
    "a comma in a name": (CELLS + "IMAGE,Pleural, Effusion,A1\n", "row-length"),
    "a quotation mark that never ends": (CELLS + '"IMAGE,FINDING,A1\n', "table-syntax"),
    "a quotation mark inside": (CELLS + '"IM"AGE,FINDING,A1\n', "table-syntax"),
    "a quotation that swallows the file": (CELLS + 'IMAGE,FINDING,"A1\n' + "IMAGE,FINDING,A1\n" * 1000, "table-syntax"),
    "a line end in a quotation": (CELLS + '"IMAGE\n",FINDING,A1\n', "control-character"),
    "a million quotation marks": (CELLS + '"' * 1_000_001, "table-syntax"),
    "only quotation marks": ('"' * 100_001, "table-syntax"),
    "a decimal comma": (HEAD.replace(",", ";") + "IMAGE;FINDING;1,5;2\n", "wrong-type"),
    "tabs after a head of commas": (CELLS + "IMAGE\tFINDING\tA1\n", "row-length"),
    "a NUL in a cell": (CELLS + "IMAGE\x00,FINDING,A1\n", "control-character"),
    "a formula for an image": (CELLS + "=IMAGE,FINDING,A1\n", "unknown-image"),
    "a command for an image": (CELLS + '"@SUM(1+1)*cmd|\' /C calc\'!A0",FINDING,A1\n', "unknown-image"),
    "NaN": (HEAD + "IMAGE,FINDING,NaN,1\n", "not-finite"),
    "inf": (HEAD + "IMAGE,FINDING,-inf,1\n", "not-finite"),
    "1e400": (HEAD + "IMAGE,FINDING,1e400,1\n", "not-finite"),
    "NA": (HEAD + "IMAGE,FINDING,NA,1\n", "wrong-type"),
    "a number of 300 digits": (HEAD + "IMAGE,FINDING," + "9" * 300 + ",1\n", "number-as-text"),
    "a number of 5,000 digits": (HEAD + "IMAGE,FINDING," + "9" * 5000 + ",1\n", "wrong-type"),
    "digits of another script": (HEAD + "IMAGE,FINDING,\u0661\u0662,1\n", "number-as-text"),
    "a thousands separator": (HEAD + 'IMAGE,FINDING,"1,000",1\n', "wrong-type"),
    "hexadecimal": (HEAD + "IMAGE,FINDING,0x10,1\n", "wrong-type"),
    "half a point": (HEAD + "IMAGE,FINDING,10,\n", "wrong-type"),
    "half a mask": ("image_id,finding,size_h,size_w,counts\nIMAGE,FINDING,48,,PPP\n", "wrong-type"),
    "an image of spaces": (CELLS + "   ,FINDING,A1\n", "unknown-image"),
    "no image given": (CELLS + ",FINDING,A1\n", "missing-field"),
    "a line of 5 MB": (CELLS + "x" * 5_000_000, "line-length"),
    "150,000 rows": (CELLS + "a,b,c\n" * 150_000, "unknown-image unknown-finding cell too-many-problems"),
    "a million empty rows": (CELLS + "\n" * 1_000_000, "entries"),
    "half a character": (b"image_id,finding,cell\n\xed\xa0\x80,Edema,A1\n", "encoding"),
    "Latin-1": ("image_id,finding,cell\nIMAGE,\xd6dem,A1\n".encode("latin-1"), "encoding"),
    "odd but sound: TSV, CRLF, quotes": ('image_id\tfinding\tcell\r\n"IMAGE"\t"FINDING"\tA1\r\n', ""),
    "odd but sound: a head in capitals": (" Image_Id,Finding , Cell\nIMAGE,FINDING,A1\n", ""),
    "odd but sound: old line ends": (CELLS.replace("\n", "\r") + "IMAGE,FINDING,A1\r", ""),
    "odd but sound: semicolons": (CELLS.replace(",", ";") + "IMAGE;FINDING;A1\n", ""),
    "odd but sound: a separator declared": ("sep=;\n" + CELLS.replace(",", ";") + "IMAGE;FINDING;A1\n", ""),
    "odd but sound: blank rows": (CELLS + "\n,,\nIMAGE,FINDING,A1\n,,\n", ""),
    "odd but sound: blanks around numbers": (HEAD + "IMAGE,FINDING, 1.5 ,+2e0\n", ""),
}  # fmt: skip

TABLES: tuple[Bad, ...] = tuple(bad_texts("tables", TABLE))
