"""Docstrings that are put together of those of a class and its bases."""

from numpydoc.docscrape import NumpyDocString

from skdp.estimators._documented import documented

BASE, WHOLE = (
    "{}\n\nParameters\n----------\n{}\n\nNotes\n-----\n{}\n\nExamples\n--------\n>>> 1\n1\n".format(
        *parts
    )
    for parts in (
        (
            "A base.",
            "a : int\n    One.\n\n    More.\nb : int\n    Two.\nc, d : int\n    3.",
            "All.",
        ),
        ("A class.", "e : int\n    Own.\nb : str\n    Another.", "One."),
    )
)


def test_a_docstring_holds_what_bases_of_the_package_say():
    of = {"__module__": "skdp.made_up"}
    stranger = type("Stranger", (), {"__doc__": BASE.replace("a : int", "z : int")})
    base = type("Base", (stranger,), of | {"__doc__": BASE})
    of |= {"__doc__": WHOLE, "__init__": lambda self, a, *, b, c, d, e: None}
    found = NumpyDocString(documented(type("Whole", (base,), of)).__doc__)
    assert [(p.name, p.type, p.desc) for p in found["Parameters"]] == [
        ("a", "int", ["One.", "", "More."]),  # by position
        ("e", "int", ["Own."]),
        ("b", "str", ["Another."]),
        ("c, d", "int", ["3."]),
    ]
    assert found["Notes"] == ["One.", "", "All."]
    assert found["Examples"] == [">>> 1", "1"]
    assert found["Summary"] == ["A class."]


def test_a_method_says_what_that_of_a_base_says_of_the_parameters_that_it_takes():
    def score(self, X, weight=None, *, exposure=None):
        """Own words.

        Parameters
        ----------
        exposure : float
            Time.
        """

    def first(self, X, weight=None, seed=None):
        """Words of the base.

        Parameters
        ----------
        X : array
            Rows.
        weight : array
            Weights.
        seed : int
            Not taken by the other.

        Returns
        -------
        float
        """

    of = {"__module__": "skdp.made_up"}
    base = type("Base", (), of | {"__doc__": BASE, "score": first})
    of |= {"__doc__": WHOLE, "score": score}
    found = NumpyDocString(documented(type("Whole", (base,), of)).score.__doc__)
    assert [p.name for p in found["Parameters"]] == ["X", "weight", "exposure"]
    assert found["Summary"] == ["Own words."]
    assert [r.type for r in found["Returns"]] == ["float"]
