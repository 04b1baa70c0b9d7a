"""Test sets to the world: one module a format."""

from heldout.data.testset.exporters.attributions import export_attributions
from heldout.data.testset.exporters.croissant import export_croissant
from heldout.data.testset.exporters.documents import write_documents
from heldout.data.testset.exporters.export import Export, Failure
from heldout.data.testset.exporters.formats import FORMATS, export
from heldout.data.testset.exporters.huggingface import export_huggingface
from heldout.data.testset.exporters.licences import LicenceRule, licence_rule
from heldout.data.testset.exporters.placed_files import (
    MODES,
    Placed,
    Placement,
    find_image_file,
    place_files,
)
from heldout.data.testset.exporters.subpopbench import SubpopRow, subpopbench_csv
from heldout.data.testset.exporters.tabular import export_tabular, joined_table
from heldout.data.testset.exporters.webdataset import export_webdataset
from heldout.data.testset.exporters.wnid_folders import export_wnid_folders

__all__ = [
    "FORMATS",
    "MODES",
    "Export",
    "Failure",
    "LicenceRule",
    "Placed",
    "Placement",
    "SubpopRow",
    "export",
    "export_attributions",
    "export_croissant",
    "export_huggingface",
    "export_tabular",
    "export_webdataset",
    "export_wnid_folders",
    "find_image_file",
    "joined_table",
    "licence_rule",
    "place_files",
    "subpopbench_csv",
    "write_documents",
]
