"""What is publicly known of Adult's columns; nothing here was computed from its rows."""

#: The 15 fields of a row, in the order of the files; the last one is the target.
ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)

#: Public bounds of the numeric columns, from the census form and its coding: ages above 16,
#: top-coded at 90; 16 levels of education; gains top-coded in five digits; hours in two digits.
#: ``fnlwgt`` is a survey weight, not a feature, and has no entry.
ADULT_BOUNDS = {
    "age": (17.0, 90.0),
    "education_num": (1.0, 16.0),
    "capital_gain": (0.0, 99999.0),
    "capital_loss": (0.0, 5000.0),
    "hours_per_week": (1.0, 99.0),
}

_CATEGORIES = {
    "workclass": (
        "Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov "
        "Without-pay"
    ),
    "education": (
        "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate "
        "HS-grad Masters Preschool Prof-school Some-college"
    ),
    "marital_status": (
        "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married "
        "Separated Widowed"
    ),
    "occupation": (
        "Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing "
        "Handlers-cleaners Machine-op-inspct Other-service Priv-house-serv Prof-specialty "
        "Protective-serv Sales Tech-support Transport-moving"
    ),
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native_country": (
        "Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England "
        "France Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India "
        "Iran Ireland Italy Jamaica Japan Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) "
        "Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan Thailand "
        "Trinadad&Tobago United-States Vietnam Yugoslavia"
    ),
}

#: Every category that the data description (``adult.names``) lists, sorted.
ADULT_CATEGORIES = {column: tuple(names.split()) for column, names in _CATEGORIES.items()}

DESCRIPTION = """\
Adult (census income)
=====================

48842 persons of the 1994 US census: 32561 in adult.data ("train"), 16281 in adult.test ("test").
14 features; the target is whether the yearly income exceeds 50,000 dollars (11687 do).
Sensitive features: sex (32650 Male, 16192 Female) and race (5 categories).
Missing values (NaN): workclass 2799, occupation 2809, native_country 857; 45222 rows have none.
education and education_num say the same thing; fnlwgt is a survey weight, not a property of the
person. 52 rows repeat an earlier one.

The target mirrors who earned how much in 1994, with that time's inequalities; it measures no merit.

Source: Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
https://doi.org/10.24432/C5XW20. Licence: CC BY 4.0; only compressed, otherwise unchanged.
"""
