"""Test sets to the world: one module per format."""

from heldout.data.testset.exporters.croissant import export_croissant
from heldout.data.testset.exporters.formats import FORMATS, export, export_attributions
from heldout.data.testset.exporters.huggingface import export_huggingface
from heldout.data.testset.exporters.images import Failure
from heldout.data.testset.exporters.licences import LicenceRule, licence_rule
from heldout.data.testset.exporters.owned_folder import (
    MODES,
    Export,
    Placed,
    Placement,
    find_image_file,
    place_files,
    write_documents,
)
from heldout.data.testset.exporters.tables import (
    SubpopRow,
    export_tabular,
    joined_table,
    subpopbench_csv,
)
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
