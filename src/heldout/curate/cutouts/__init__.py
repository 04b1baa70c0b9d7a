"""Cut-outs: objects cut out of photos, by outlines that exist or by a segmenter.

Everything that the user already has comes first (alpha, mask files, COCO, OpenImages); GrabCut
needs no weights; a network is any local ONNX file. Each cut-out is cleaned, measured and checked,
and the folder that comes out is what ``heldout build compose --foregrounds`` takes.
"""
